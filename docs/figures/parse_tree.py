"""A constituency tree, the words of its source, and the tokens that a model learns to generate for it."""

from drawing import Drawing

from t2t_keras.pictures.tree_drawing import tree_svg
from t2t_keras.tasks.parsing.linear_trees import linearised
from t2t_keras.tasks.parsing.trees import tree_of_line

TREE = "(S (NP (DT The) (NN dog)) (VP (VBZ barks) (PP (IN at) (NP (DT a) (NN cat)))) (. .))"


def parse_tree() -> str:
    """Returns the words on the left, their tree beside them, and its linear form below."""
    tree = tree_of_line(TREE)
    drawing = Drawing(820, 336, "A sentence, its constituency tree, and the tree in one line")
    drawing.box(20, 96, 260, 48, "what the model reads", f"`{' '.join(tree.words())}`", kind="network")
    drawing.arrow((150, 144), (150, 266))
    drawing.inset(400, 6, tree_svg(tree.children[0]))
    drawing.arrow((500, 240), (500, 266))
    drawing.text(516, 252, "depth first", "left", "small")
    link = "t2t_keras/tasks/parsing/linear_trees.py#linearised"
    drawing.box(20, 270, 779, 50, "what it learns to write", f"`{linearised(tree)}`", kind="output", link=link)
    return drawing.svg()
