"""doit's loader, run command, backend and reporter for Kiln: the only room that imports doit.

A project switches them on in its own pyproject.toml or doit.cfg; other doit projects in the same environment do not
notice.
"""
