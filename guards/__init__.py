"""From shapes to graphs, without disk: access paths, checks, evidence, gears, frames, dispatch."""
