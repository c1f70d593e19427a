"""The cost of moving data: between tiles, IPUs and replicas, from the host and from memory."""

from .between_replicas import Collectives as Collectives
from .between_replicas import Sum as Sum
from .between_replicas import bytes_of_replica_sums as bytes_of_replica_sums
from .exchange_code import Pieces as Pieces
from .exchange_code import partial_pieces as partial_pieces
from .exchange_code import scattered_pieces as scattered_pieces
from .exchange_code import shared_pieces as shared_pieces
from .exchanges import HostLink as HostLink
from .exchanges import merge_exchanges as merge_exchanges
from .links import RACK_IPUS as RACK_IPUS
from .links import Hop as Hop
from .links import busiest_link_cycles as busiest_link_cycles
from .links import bytes_by_hop as bytes_by_hop
from .links import exchange_cycles as exchange_cycles
from .links import external_sync_cycles as external_sync_cycles
from .links import find_route as find_route
from .links import host_link_cycles as host_link_cycles
from .links import inter_ipu_cycles as inter_ipu_cycles
from .links import link_bytes_per_cycle as link_bytes_per_cycle
from .links import remote_memory_cycles as remote_memory_cycles
