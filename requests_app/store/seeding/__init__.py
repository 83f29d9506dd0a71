"""Test data of any size (design 5.6.4): what is written (`layout`) and how it gets there fast (`filling`)."""
