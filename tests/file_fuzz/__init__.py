"""Changed files for every reader: none may run code, end the process, or fail with a bare error.

`changes` changes bytes and JSON; each module of `readers` has good files and says how to read them;
`watch` finds what a file made the process do; `run` reads many changed files in a child process.
"""
