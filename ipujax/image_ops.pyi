from .operators.image import CHANNELS as CHANNELS
from .operators.image import normalise_image as normalise_image
