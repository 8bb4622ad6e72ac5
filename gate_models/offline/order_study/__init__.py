"""The study of commit orders: which one meets more constraints at the same cost."""
