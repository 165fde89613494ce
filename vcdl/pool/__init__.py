"""A job over a pool of pilots: clients that come by themselves, through a folder that all of them share."""
