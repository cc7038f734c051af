"""What every service process is made of. Import from its modules; each is named after what it holds."""
