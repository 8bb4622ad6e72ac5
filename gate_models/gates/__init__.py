"""Gates that are trained or calibrated: their files, where they hold, and how a request gets one."""
