"""The shadow audit: a share of handed-off texts is decoded with guidance too."""
