"""A request for text: from the body to decoding jobs, and from results to the answer."""
