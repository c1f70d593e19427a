"""The data of TessellateIPU's compiled library: descriptions of vertices."""
