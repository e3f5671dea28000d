"""How many cycles a kernel takes, by walking its loops instead of running them.

Nothing of the simulator is used: only the instruction table, with what it says of an instruction's timing.
"""

from compiler.cost.prediction import Prediction, Unpredictable, predict, predict_program

__all__ = ["Prediction", "Unpredictable", "predict", "predict_program"]
