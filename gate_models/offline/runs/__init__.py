"""What all offline runs share: worker processes, result files, recorded traces, versions."""
