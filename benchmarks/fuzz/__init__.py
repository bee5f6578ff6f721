"""Fuzzers: of the manifest decoder (`manifest`) and of cached modules beside eager (`modules`): `docs/fuzzing.md`."""
