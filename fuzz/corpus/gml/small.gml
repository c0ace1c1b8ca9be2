Creator "x"
graph [
  directed 1
  node [ id 0 label "a&amp;b" graphics [ x 1 y [ z 2 ] ] ]
  node [ id 5 ]
  # comment
  edge [ source 0 target 5 weight 2.5 ]
  edge [ source 5 target 5 value 1 ]
]
