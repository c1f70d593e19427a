// The shortest times of all orders, proven by `schedules.search`.
// Written by tests/ipujax/report/optima.py.

/**
 * By kind, IPUs and the micro-batches for which an IPU has memory: the times for 1, 2 and more
 * micro-batches, where F, B and W of a stage each take 1; null where none is proven. In a V an IPU
 * has two stages.
 */
export const OPTIMA = {
  "straight 2 1": [6, 12, 18, 24, 30, 36, 42, 48],
  "straight 2 2": [6, 9, 12, 15, 18, 21, 24, 27],
  "straight 3 1": [9, 18, 27, 36, 45, 54, 63, 72],
  "straight 3 2": [9, 12, 18, 21, 27, 30, 36, 39],
  "straight 3 3": [9, 12, 15, 18, 21, 24, 27, 30],
  "straight 4 1": [12, 24, 36, 48, 60, 72, 84, 96],
  "straight 4 2": [12, 15, 24, 27, 36, 39, 48, 51],
  "straight 4 3": [12, 15, 18, 24, 27, 30, 36, 39],
  "straight 4 4": [12, 15, 18, 21, 24, 27, 30, 33],
  "straightSplit 2 1": [5, 10, 15, 20, 25, 30, 35, 40],
  "straightSplit 2 2": [5, 7, 10, 13, 16, 19, 22, 25],
  "straightSplit 3 1": [7, 14, 21, 28, 35, 42, 49, 56],
  "straightSplit 3 2": [7, 9, 14, 17, 21, 25, 29, 33],
  "straightSplit 3 3": [7, 9, 11, 14, 17, 20, 23, 26],
  "straightSplit 4 1": [9, 18, 27, 36, 45, 54, 63, 72],
  "straightSplit 4 2": [9, 11, 18, 21, 27, 31, 36, 41],
  "straightSplit 4 3": [9, 11, 13, 18, 21, 24, 27, 31],
  "straightSplit 4 4": [9, 11, 13, 15, 18, 21, 24, 27],
  "vSplit 2 1": [9, 17, 25, 33, 41, 49, 57, null],
  "vSplit 2 2": [9, 13, 19, 25, 31, 37, null, null],
  "vSplit 3 1": [13, 23, 33, 43, 53, 63, 73, 83],
  "vSplit 3 2": [13, 16, 23, 29, 35, 41, 47, 53],
  "vSplit 3 3": [13, 16, 20, 26, 32, 38, 44, 50],
  "vSplit 4 1": [17, 29, 41, 53, 65, 77, 89, 101],
  "vSplit 4 2": [17, 19, 29, 35, 41, 47, 53, 59],
  "vSplit 4 3": [17, 19, 23, 29, 35, 41, 47, 53],
  "vSplit 4 4": [17, 19, 23, 27, 33, 39, 45, 51],
};
