"""The names of the files of which a compiled gear consists."""

LIBRARY = "graph.so"
CONSTANTS = "constants.msgpack"
#: Calls of operators that have no C interface, as AOTInductor describes them: custom operators, and few of torch.
EXTERN = "extern.json"
