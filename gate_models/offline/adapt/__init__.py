"""Gates for tasks of one's own: from a file of prompts to trained, audited gates and a report."""
