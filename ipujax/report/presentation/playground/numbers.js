// Whole numbers in a row.

export const range = (end, from = 0) => Array.from({ length: Math.max(end - from, 0) }, (_, i) => from + i);
