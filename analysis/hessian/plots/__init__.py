"""Pictures of spectra, layers and clients; nothing here measures."""
