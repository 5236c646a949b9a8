"""What bench/machine_code.py reads from a disassembler's listing."""
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
import machine_code

LISTING = """
.text.kernel:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/              @!P0 BRA `(.L_x_1) ;
.L_x_0:
        /*0020*/                   LDG.E.64 R2, desc[UR4][R2.64] ;
        /*0030*/                   LDG.E R4, desc[UR4][R4.64+0x80] ;
        /*0040*/                   FFMA R6, R2, R3, R6 ;
        /*0050*/                   FFMA R6, R4, R3, R6 ;
        /*0060*/                   IADD3 R2, R2, 0x1, RZ ;
        /*0070*/                   FFMA R7, R2, R3, R7 ;
        /*0080*/               @P1 STG.E desc[UR4][R8.64], R6 ;
        /*0090*/                   BAR.SYNC.DEFER_BLOCKING 0x0 ;
        /*00a0*/               @P2 BRA `(.L_x_0) ;
.L_x_1:
        /*00b0*/                   EXIT ;
.L_x_2:
        /*00c0*/                   BRA `(.L_x_2);
        /*00d0*/                   NOP;
"""


class MachineCode(unittest.TestCase):
    def setUp(self):
        self.code, self.labels = machine_code.read_code(LISTING)

    def test_instructions_and_conditions(self):
        self.assertEqual(len(self.code), 14)
        self.assertEqual(self.code[1], ("BRA", True, "L_x_1"))
        self.assertEqual(self.code[2], ("LDG.E.64", False, None))

    def test_loops(self):
        loops = machine_code.loops_of(self.code, self.labels)
        self.assertEqual(len(loops), 1)
        self.assertEqual((len(loops[0]), loops[0].count("FFMA")), (9, 3))

    def test_order(self):
        self.assertEqual(machine_code.order_of(self.code), "?BRA LDG*2 ?STG BAR ?BRA EXIT BRA")


if __name__ == "__main__":
    unittest.main()
