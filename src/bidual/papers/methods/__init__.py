"""Methods of the papers that experiments, tests and readers use, and that no estimator or command needs."""
