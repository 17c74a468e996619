"""The pure core: standard library only. Handed `now` and commands, it returns values."""
