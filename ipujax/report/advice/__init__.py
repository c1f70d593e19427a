"""Advice on a program's cost: rules over its nodes and its modelled profile, free of presentation.

`index` indexes the program once, `facts` answers the rules' queries of it and the profile, `costs`
and `memory` are the rules, and `findings` their results. `memory_changes` lists changes that a user
could make to need less memory, and `trials` models the program with them.
"""
