"""What would help a program: rules over its index and its profile, which know of no presentation.

`index` is the program looked through once, `facts` what the rules ask of it and of the profile,
`costs` and `memory` the rules, and `findings` what they give. `changes` is what a user could change
to need less memory, and `trials` models the program with that.
"""
