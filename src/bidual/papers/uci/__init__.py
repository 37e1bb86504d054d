"""The UCI study of PR Table 3: its data, models, runs and duels."""
