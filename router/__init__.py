"""The only door for clients: sends requests through render and generate pods and brings the answer back."""
