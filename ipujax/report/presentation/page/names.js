// What operations are called, and where in the model they are.

/** What people call an operation, such as `conv 3x3 16 -> 16`; older reports have the primitive's name alone. */
export function friendlyName(operation) {
  return operation.label || operation.name;
}

/** The scopes around an operation, outermost first; none where the user named none. */
export function scopePath(operation) {
  return operation.scope ? operation.scope.split("/") : [];
}
