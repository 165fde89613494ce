"""Parts of a VCDL that is somebody else's."""
