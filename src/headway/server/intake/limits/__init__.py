"""What a key may ask for: requests a minute, requests at once, tokens and money."""
