"""Programs of several processes: how they start, find each other and communicate."""

from . import host_collectives as host_collectives
from .agree import check_same_in_all_processes as check_same_in_all_processes
from .agree import gather_from_processes as gather_from_processes
from .exchange import Exchange as Exchange
from .exchange import ExchangeRun as ExchangeRun
from .exchange import SentOutfeed as SentOutfeed
from .holding import can_be_held_by_one_process as can_be_held_by_one_process
from .holding import make_held_array as make_held_array
from .holding import process_holding_array as process_holding_array
from .holding import share_held_arrays as share_held_arrays
from .host_collectives import average_over_processes as average_over_processes
from .host_collectives import broadcast_from_process as broadcast_from_process
from .host_collectives import concatenate_over_processes as concatenate_over_processes
from .launch import build_launch_parser as build_launch_parser
from .launch import main as main
from .meeting import connect_meshes as connect_meshes
