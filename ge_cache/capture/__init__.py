"""One Dynamo capture of a method, as frame, graph, inputs and checks."""
