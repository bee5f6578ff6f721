"""Dependencies of a trace on its process beyond Dynamo's guards, as checks or refusals."""
