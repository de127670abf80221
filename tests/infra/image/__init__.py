"""The images: what is checked without building them, and a campaign that builds and runs them."""
