"""What an internal error leaves behind: one file with all that is needed to repeat it elsewhere.

A bundle is a zip file: ``bundle.json`` (the command, versions, where it failed, the traceback) and the files that the
command named, under ``files/``. Files of others are read with the same care as models: see `replay`.
"""
