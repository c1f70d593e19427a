# The notebooks in Jupyter, with all that they use; docs/install.md says how to build and start it.
FROM python:3.12-slim

WORKDIR /opt/ipujax
COPY pyproject.toml setup.cfg PACKAGE.md LICENSE ./
COPY ipujax ipujax
COPY lowering lowering
# With the index of PyTorch's builds for CPUs, pip does not take those with CUDA.
RUN pip install --no-cache-dir --extra-index-url https://download.pytorch.org/whl/cpu \
    ".[checkpoint,export,keras,notebooks,onnx,progress,tensorboard,torch]" \
    flax jupyterlab onnxscript

RUN useradd --create-home reader
USER reader
WORKDIR /home/reader
COPY --chown=reader notebooks notebooks

EXPOSE 8888
CMD ["jupyter", "lab", "--ip=0.0.0.0", "--no-browser", "--notebook-dir=notebooks"]
