//! Log set-up, metric registry, text encoding and bucket sets. Knows nothing of what is measured.
