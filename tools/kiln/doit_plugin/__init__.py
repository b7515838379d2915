"""doit's loader, run command, backend and reporter for Kiln: the only room that imports doit."""
