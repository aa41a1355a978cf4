"""The loops of machine code, read from its text."""

from cuda_on_cpu import loops


def test_loops_are_read_from_the_text_of_nvdisasm():
    text = """
.text.kernel:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
.L_x_1:
        /*0010*/                   LDG.E R4, desc[UR4][R2.64] ;
        /*0020*/                   LDG.E.64 R6, desc[UR4][R2.64+0x4] ;
        /*0030*/              @!P0 BRA `(.L_x_3) ;
.L_x_2:
        /*0040*/               @P3 EXIT ;
        /*0048*/                   FFMA R9, R7, R7, R9 ;
        /*0050*/                   LDG.E R5, desc[UR4][R2.64+0xc] ;
        /*0060*/               @P1 BRA `(.L_x_2) ;
.L_x_3:
        /*0070*/                   FADD R9, R4, R9 ;
        /*0080*/               @P2 BRA `(.L_x_1) ;
        /*0090*/                   EXIT ;
        /*00a0*/                   BRA `(.L_x_2) ;
.L_x_4:
        /*00b0*/                   BRA `(.L_x_4) ;
"""
    inner, outer = loops(text)
    assert (inner.is_innermost, outer.is_innermost) == (True, False)
    assert [one.name for one in inner.instructions] == ["EXIT", "FFMA", "LDG", "BRA"]
    assert (inner.n_branches, outer.n_branches) == (0, 1)
    assert outer.counts == {"LDG": 2, "BRA": 2, "FADD": 1}
    # R6 and R7 are used by nobody in the outer loop; R4 is waited for, with all before it.
    assert (inner.most_under_way("LDG"), outer.most_under_way("LDG")) == (2, 3)
