"""``python -m acf`` is the command `acf`."""

from acf.cli import main

if __name__ == "__main__":
    main()
