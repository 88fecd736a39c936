"""The `roost` binary as a Python package: `roost` on the path, `python3 -m roost.frontend` in place of Dynamo's."""
