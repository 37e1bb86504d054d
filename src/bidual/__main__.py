"""`python -m bidual`, which is what torchrun starts."""

from bidual.cli import main

if __name__ == "__main__":
    main()
