"""How far a ReLU network, trained anywhere, is from the best one of its kind."""

from bidual.estimators.certifying.judging import certify
from bidual.estimators.certifying.reading import Network, from_estimator, read_network
from bidual.estimators.certifying.result import NetworkCertificate

__all__ = ["Network", "NetworkCertificate", "certify", "from_estimator", "read_network"]
