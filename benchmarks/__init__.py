"""What the product costs: looking at a payload and editing it, and carrying one from pod to pod."""
