from .operators.recurrent_layers import LSTMStateTuple as LSTMStateTuple
from .operators.recurrent_layers import PopnnAUGRU as PopnnAUGRU
from .operators.recurrent_layers import PopnnDynamicGRU as PopnnDynamicGRU
from .operators.recurrent_layers import PopnnGRU as PopnnGRU
from .operators.recurrent_layers import PopnnLSTM as PopnnLSTM
