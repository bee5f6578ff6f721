"""The names of the files that make up a compiled gear."""

LIBRARY = "graph.so"
CONSTANTS = "constants.msgpack"
#: Calls of operators without a C interface, as AOTInductor describes them: custom operators, and a few of torch.
EXTERN = "extern.json"
