package main

import "strings"

// codeWords are the words of the code interpreter's tasks: one in five occurs in held-out tasks only.
var codeWords = strings.Fields(`
account achieve address advance airport alphabet ancient angel animal apartment appetite apple arrange article artist
assemble athlete attempt attention autumn balance balloon banana banner barrel basement basket beaver bedroom beetle
believe bicycle biscuit blanket blossom bottle bracelet branch breakfast breeze brother bubble bucket builder burden
butter butterfly button cabbage cabinet calendar camera candidate candle captain caravan carpenter carpet castle
cathedral ceiling celebrate cellar century ceremony channel chapter character cheese cherry chicken chimney chocolate
circle citizen climate coffee collect college colony column comfort committee community companion concert copper corner
costume cottage cotton council courage cousin crocodile crystal culture cupboard curtain customer daughter december
decimal delicate dentist desert dictionary dinner discover distance district doctor dolphin donkey dragon drawer dream
eagle education elbow electric elephant emerald empire engine envelope evening example exercise express factory family
farmer feather festival finger firefly fisherman flavor flower football forest fortune fountain freedom friend furniture
gallery garden garlic gentle giraffe glacier glass goose grammar granite grasshopper gravity grocery guitar hammer
harbor harvest helmet history holiday honey horizon hospital hotel hundred hunter iceberg imagine incident island jacket
jewel journey jungle justice kangaroo kettle keyboard kingdom kitchen kitten knowledge ladder language lantern laughter
leather lemon leopard letter library lightning lobster machine magnet mammal marble market meadow measure medicine
member memory merchant message middle mineral minute mirror mission moment monastery monkey mosquito mountain museum
mushroom narrow needle neighbor newspaper noodle notebook november number object ocean october office onion orange
orchard orchestra ostrich oxygen paddle palace pancake paper parcel parrot passenger pattern peanut pebble pencil pepper
piano picture pigeon pillow pilot planet plastic pocket pollen popular possible potato powder prairie present prison
problem professor puppet puzzle pyramid quarter question rabbit railroad rainbow recipe reindeer remember restaurant
ribbon river rocket rubber saddle sailor salmon sandwich satellite sausage scissors secretary sentence september session
shadow shelter shoulder signal silver sister skeleton slipper snowflake soldier spaghetti sparrow spider spinach
squirrel stadium station statue strawberry student summer surface swallow sweater system teacher telescope temple
theater thunder ticket tobacco tomato tornado tortoise tractor treasure triangle trumpet tunnel turtle umbrella uniform
valley vanilla vegetable village violin volcano waiter walnut weather wedding whisper window winter wizard wonder yellow
yesterday zebra
`)
